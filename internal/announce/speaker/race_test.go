//go:build race

package speaker

// The race detector makes the speaker and the test itself several times slower.
const (
	rounds   = 1
	slowdown = 10
)
