//! The command `record`: one capture into a file.
