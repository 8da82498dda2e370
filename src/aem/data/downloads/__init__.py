"""Files from the web: transferred with progress, continued, verified, unpacked."""
