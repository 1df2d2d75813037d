// Package kubeuse checks the packages of this module that the module kube uses.
package kubeuse

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module, kube = "loxilb/", "../../kube"

// TestKubeUse checks that names that the module kube uses from packages of this module exist.
// Building kube would take minutes, because of its libraries. This test replaces them by empty
// packages, and does not check code that depends on them.
func TestKubeUse(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	packages := map[string][]*ast.File{} // by folder and name
	var imported []string                // packages of this module
	err := filepath.WalkDir(kube, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") {
			return err
		}
		f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		key := filepath.Join(filepath.Dir(name), f.Name.Name)
		packages[key] = append(packages[key], f)
		for _, spec := range f.Imports {
			p := strings.Trim(spec.Path.Value, `"`)
			if strings.HasPrefix(p, module) && !strings.HasPrefix(p, module+"kube/") {
				imported = append(imported, p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(imported)
	c := newChecker(t, files, slices.Compact(imported))
	for _, list := range packages {
		c.check(t, list)
	}
	if c.selections < 100 {
		t.Errorf("%d uses of this module were found in %s, want 100 or more: the test does not find them", c.selections, kube)
	}
}

// checker checks files of kube.
type checker struct {
	files      *token.FileSet
	own        types.Importer
	exports    map[string]string // files with the types of packages of this module and of their imports
	selections int               // from packages of this module
}

func newChecker(t *testing.T, files *token.FileSet, packages []string) *checker {
	t.Helper()
	c := &checker{files: files, exports: map[string]string{}}
	list := exec.Command("tools/go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	list.Dir, list.Stderr = "../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the packages of this module: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		c.exports[name] = file
	}
	c.own = importer.ForCompiler(c.files, "gc", func(name string) (io.ReadCloser, error) { return os.Open(c.exports[name]) })
	return c
}

// Import returns a package of this module or of Go's library, and an empty one for others.
func (c *checker) Import(name string) (*types.Package, error) {
	if c.exports[name] != "" {
		return c.own.Import(name)
	}
	empty := types.NewPackage(name, path.Base(name))
	empty.MarkComplete()
	return empty, nil
}

// check checks the files of a package.
func (c *checker) check(t *testing.T, files []*ast.File) {
	t.Helper()
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: c, Error: func(error) {}} // most are of packages that are empty here
	_, _ = config.Check(files[0].Name.Name, c.files, files, &info)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if err := c.selection(s, &info); err != nil {
					t.Error(err)
				}
			}
			return true
		})
	}
}

// selection returns an error if something is selected from a package or a type of this module that
// does not have it.
func (c *checker) selection(s *ast.SelectorExpr, info *types.Info) error {
	of := ""
	if x, ok := s.X.(*ast.Ident); ok {
		if p, ok := info.Uses[x].(*types.PkgName); ok {
			of = p.Imported().Path()
		}
	}
	if x := info.Types[s.X].Type; of == "" && x != nil {
		if pointer, ok := x.(*types.Pointer); ok {
			x = pointer.Elem()
		}
		if named, ok := x.(*types.Named); ok && named.Obj().Pkg() != nil {
			of = named.Obj().Pkg().Path()
		}
	}
	if !strings.HasPrefix(of, module) || c.exports[of] == "" {
		return nil
	}
	c.selections++
	if info.Uses[s.Sel] != nil {
		return nil
	}
	return fmt.Errorf("%s: %s has no %s", c.files.Position(s.Sel.Pos()), of, s.Sel.Name)
}
