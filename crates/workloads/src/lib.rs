//! Workloads.
#![no_std]
