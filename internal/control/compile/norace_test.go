//go:build !race

package compile

const slowdown = 1
