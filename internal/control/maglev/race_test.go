//go:build race

package maglev

// slowdown is the factor by which the race detector slows code down.
const slowdown = 10
