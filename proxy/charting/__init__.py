"""The Helm chart's values, described once: the schema that Helm refuses by and the page that people read."""
