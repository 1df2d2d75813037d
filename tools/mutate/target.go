package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A target puts a mistake into a copy of a source file that the compiler reads.
type target interface {
	// make returns the file for go test -overlay; an error if the mistake does not compile.
	make(m mistake) (overlay string, err error)
	// tests are the packages that test the source, if none are named.
	tests(source string) []string
}

// overlay writes the file for go build -overlay that replaces files of the tree.
func overlay(dir string, replace map[string]string) (name string, err error) {
	absolute := map[string]string{}
	for file, by := range replace {
		if file, err = filepath.Abs(file); err != nil {
			return "", err
		}
		absolute[file] = by
	}
	text, err := json.Marshal(map[string]any{"Replace": absolute})
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

type goPackage struct{ dir string }

func (goPackage) tests(source string) []string { return []string{source} }

func (p goPackage) make(m mistake) (string, error) {
	text, err := m.apply()
	if err != nil {
		return "", err
	}
	file := filepath.Join(p.dir, "mistake.go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	return overlay(p.dir, map[string]string{m.file: file})
}

const objects = "internal/kernel/datapath/bpf"

// bpfSource is a BPF source: its mistakes are compiled into all objects that include it.
type bpfSource struct {
	dir     string
	objects []object
}

// An object is compiled from a program's source and macros: tcsctp_bpfel.o.gz of bpf/tc.bpf.c.
type object struct {
	name    string
	program string
	macros  []string
}

// directive matches the go:generate lines that compile an object.
var directive = regexp.MustCompile(`(?m)^//go:generate \S+/tools/bpf (\w+) \S+/(bpf/\S+)(.*)$`)

// objectsIn lists the objects of a Go file's directives.
func objectsIn(text string) (all []object) {
	for _, m := range directive.FindAllStringSubmatch(text, -1) {
		o := object{name: strings.ToLower(m[1]), program: m[2]}
		for _, arg := range strings.Fields(m[3]) {
			if strings.HasPrefix(arg, "-D") {
				o.macros = append(o.macros, arg)
			}
		}
		all = append(all, o)
	}
	return all
}

func newBPF(source, dir string) (*bpfSource, error) {
	text, err := os.ReadFile(filepath.Join(objects, "gen.go"))
	if err != nil {
		return nil, err
	}
	s := &bpfSource{dir: dir}
	for _, o := range objectsIn(string(text)) {
		out, err := o.clang("", "-MM")
		if err != nil {
			return nil, err
		}
		if slices.Contains(strings.Fields(string(out)), source) {
			s.objects = append(s.objects, o)
		}
	}
	if len(s.objects) == 0 {
		return nil, fmt.Errorf("no program includes %q", source)
	}
	return s, os.CopyFS(filepath.Join(dir, "bpf"), os.DirFS("bpf"))
}

func (s *bpfSource) tests(string) []string {
	tests := []string{"internal/kernel/datapath/connections"}
	if slices.ContainsFunc(s.objects, func(o object) bool { return o.program == "bpf/tc.bpf.c" || o.program == "bpf/xdp.bpf.c" }) {
		tests = append(tests, "test/packet")
	}
	return tests
}

// clang runs the compiler on the object's program below a folder, with arguments as in tools/bpf.
func (o object) clang(dir string, args ...string) ([]byte, error) {
	machine := "x86_64"
	if out, err := exec.Command("uname", "-m").Output(); err == nil {
		machine = strings.TrimSpace(string(out))
	}
	args = append(args, "-target", "bpfel", "-O2", "-g", "-Wall", "-mcpu=v3", "-I"+filepath.Join(dir, "bpf"),
		"-I/usr/include/"+machine+"-linux-gnu")
	args = append(append(args, o.macros...), filepath.Join(dir, o.program))
	return output("clang-19", args...)
}

// output runs a command, and returns what it printed.
func output(name string, args ...string) ([]byte, error) {
	out, err := exec.Command(name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// make compiles the objects that the mistake changes. Macros exclude some lines from some objects.
func (s *bpfSource) make(m mistake) (string, error) {
	text, err := m.apply()
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.dir, m.file)
	right, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	defer func() { _ = os.WriteFile(file, right, 0o600) }()
	replace := map[string]string{}
	for _, o := range s.objects {
		same, err := o.isSame(s.dir)
		if err != nil {
			return "", err
		}
		if same {
			continue
		}
		if replace[filepath.Join(objects, o.name+"_bpfel.o.gz")], err = o.compile(s.dir); err != nil {
			return "", err
		}
	}
	if len(replace) == 0 {
		return "", fmt.Errorf("%s: no object has this line", m)
	}
	return overlay(s.dir, replace)
}

// isSame reports whether the object's program below a folder is the tree's.
func (o object) isSame(dir string) (bool, error) {
	ours, err := o.clang("", "-E", "-P")
	if err != nil {
		return false, err
	}
	theirs, err := o.clang(dir, "-E", "-P")
	return bytes.Equal(ours, theirs), err
}

// compile compiles the object, and returns the name of its file.
func (o object) compile(dir string) (string, error) {
	file := filepath.Join(dir, o.name+".o")
	if _, err := o.clang(dir, "-c", "-o", file); err != nil {
		return "", err
	}
	if _, err := output("llvm-strip-19", "-g", file); err != nil {
		return "", err
	}
	_, err := output("gzip", "-1f", file)
	return file + ".gz", err
}
