// Package nbc executes schedules: the non-blocking engine.
package nbc
