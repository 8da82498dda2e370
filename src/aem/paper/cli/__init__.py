"""The commands of `aem reproduce`."""
