package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"loxilb/tools/markdown"
)

// promises are sentences by number.
type promises map[int]string

// readPromises collects the promises of all tests below a folder.
func readPromises(root string) (promises, error) {
	found := promises{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := found.collect(source); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return found, err
}

// collect takes the promises of a file of tests: in the comment of a test, P and a number at the
// beginning of a line, and the sentence, to the end of the paragraph. Further tests of the promise
// have the number alone.
func (p promises) collect(source []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	begin := regexp.MustCompile(`(?m)^P(\d+)\b(.*(?:\n(?:[^PV\n]|[PV][^\d\n]).*)*)`)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Doc == nil || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		for _, m := range begin.FindAllStringSubmatch(f.Doc.Text(), -1) {
			number, err := strconv.Atoi(m[1])
			if err != nil {
				return err
			}
			sentence := strings.Join(strings.Fields(m[2]), " ")
			if sentence != "" && p[number] != "" {
				return fmt.Errorf("promise %d: two sentences: %q and %q", number, p[number], sentence)
			}
			p[number] = cmp.Or(p[number], sentence)
		}
	}
	return nil
}

const promisesHead = `<!-- Generated from the comments of tests by tools/refdoc (make generate). Do not edit. -->

# What loxilb promises

Each promise has tests: ` + "`git grep -w P1 -- '*_test.go'`" + ` finds those of P1.
` + "`make test RUN=NAME`" + ` runs one; ` + "`make test-long`" + ` runs longer versions of some.

## Promises

`

// page returns the whole page. Numbers must have no gaps, so a lost promise is noticed.
func (p promises) page() (string, error) {
	var b strings.Builder
	b.WriteString(promisesHead)
	for i, number := range slices.Sorted(maps.Keys(p)) {
		if number != i+1 {
			return "", fmt.Errorf("promise %d has no test, and %d has one", i+1, number)
		}
		if p[number] == "" {
			return "", fmt.Errorf("promise %d has no sentence", number)
		}
		b.WriteString(markdown.Item(fmt.Sprintf("`P%d`: %s", number, strings.TrimSuffix(p[number], "."))))
	}
	return b.String(), nil
}
