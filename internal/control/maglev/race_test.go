//go:build race

package maglev

// slowdown is what the race detector costs.
const slowdown = 10
