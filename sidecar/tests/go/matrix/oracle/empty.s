// Lets the package have functions without bodies: those that it shares with the runtime.
