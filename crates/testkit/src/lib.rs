//! The test kit: scripted client and origin, a server under test, a slow disk.
