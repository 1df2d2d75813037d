//go:build !race

package speaker

const (
	rounds   = 5 // of each measurement; the median counts
	slowdown = 1 // times a goal may take
)
