"""Activation: how configuration files, components, signals and control files start a recording."""
