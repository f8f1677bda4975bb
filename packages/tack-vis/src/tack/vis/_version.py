"""The version, where the build finds it without importing Tack."""

VERSION = "0.1.0"
