"""The command line, the runners' front door, reports, built-in recipes and the demo."""
