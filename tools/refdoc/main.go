// Command refdoc writes the reference pages from the code, so they match the programs: manual pages
// of commands and flags, services' fields, events, metrics and promises, and docs/compatibility.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"loxilb/internal/telemetry/metrics"
	"loxilb/tools/markdown"
)

//go:generate go run . -root ../..

func main() {
	root := flag.String("root", ".", "directory of the project")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "refdoc:", err)
		os.Exit(1)
	}
}

// run writes all pages of the project in a directory.
func run(root string) error {
	pages, err := manuals(root)
	if err != nil {
		return err
	}
	pages["man/loxicmd.1"], pages["man/loxilb.8"] = manual(), daemonManual()
	pages["compatibility.md"] = compatibility(false)
	for name, text := range pages {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, "docs", name), []byte(text), 0o644))
	}
	return err
}

// manuals returns the pages of section 7, by their file below docs.
func manuals(root string) (map[string]string, error) {
	code, err := os.ReadFile(filepath.Join(root, "internal/event/event.go"))
	if err != nil {
		return nil, err
	}
	openapi, err := os.ReadFile(filepath.Join(root, "api/openapi.yaml"))
	if err != nil {
		return nil, err
	}
	events, err := events(string(code))
	if err != nil {
		return nil, err
	}
	fields, err := fields(string(openapi))
	if err != nil {
		return nil, err
	}
	found, err := readPromises(root)
	if err != nil {
		return nil, err
	}
	promises, err := found.page()
	if err != nil {
		return nil, err
	}
	pages := map[string]string{}
	for name, text := range map[string]string{
		"loxilb-fields": fields, "loxilb-events": events, "loxilb-promises": promises,
		"loxilb-metrics": metricsPage(metrics.Catalog()), "loxilb-compatibility": compatibility(true),
	} {
		pages["man/"+name+".7"] = markdown.Manual(name, text)
	}
	return pages, nil
}
