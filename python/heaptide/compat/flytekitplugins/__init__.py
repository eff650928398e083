"""The package of Flyte's plugins, for programs in whose environment no plugin of Flyte is installed."""
