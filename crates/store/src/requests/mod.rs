//! Requests executed on the store: one by one or several as one, within the bound
//! on memory and the quotas of their keys.

mod quotas;
