"""Support for the tests of real platforms: their installed environments, and the behaviours that the tests prove."""
