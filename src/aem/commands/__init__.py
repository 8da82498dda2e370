"""The commands of `aem`, one file each."""
