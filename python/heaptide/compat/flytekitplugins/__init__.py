"""The package of Flyte's plugins, for environments in which no plugin of Flyte is installed."""
