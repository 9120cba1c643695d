//go:build !race

package nbc_test

const raceDetector = false
