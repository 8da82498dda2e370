"""What everything else stands on: settings, files, threads, devices, progress. It knows no model."""
