"""Foundations of all other folders: settings, files, threads, devices, progress."""
