//! Settings: command line, environment, a file of TOML; each checked once, here.
