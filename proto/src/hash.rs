//! How tables of this project are hashed: by `foldhash`, seeded at random in each process, for a window's tables are asked once for each
//! sample and each frame, and the standard library's hash was a seventh of what naming and assembling cost. Whoever could choose
//! what collides (a decoded profile) meets a bound on elements first.

/// The seeds of a table.
pub type State = foldhash::fast::RandomState;
/// [`std::collections::HashMap`], hashed so.
pub type Map<K, V> = std::collections::HashMap<K, V, State>;
/// [`std::collections::HashSet`], hashed so.
pub type Set<T> = std::collections::HashSet<T, State>;
