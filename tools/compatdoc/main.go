// Command compatdoc writes docs/compatibility.md from internal/contract.
package main

import (
	"flag"
	"fmt"
	"os"
)

//go:generate go run . -out ../../docs/compatibility.md

func main() {
	out := flag.String("out", "docs/compatibility.md", "page to write")
	flag.Parse()
	if err := os.WriteFile(*out, []byte(page()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "compatdoc:", err)
		os.Exit(1)
	}
}
