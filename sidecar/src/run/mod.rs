//! The command `run`: the agent.
