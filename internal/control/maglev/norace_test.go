//go:build !race

package maglev

const slowdown = 1
