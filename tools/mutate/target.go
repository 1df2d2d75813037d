package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A target makes a mistake where the compiler finds it.
type target interface {
	// make returns the file for go test -overlay; an error if the mistake does not compile.
	make(m mistake) (overlay string, err error)
	// tests are the packages that test the source, if none are named.
	tests(source string) []string
}

// overlay writes the file that makes Go read these files instead of the tree's.
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

// bpfSource is a BPF source: its mistakes are compiled into the objects of all programs that
// include it.
type bpfSource struct {
	dir      string
	programs []string // tc, sweep, ...
}

func newBPF(source, dir string) (*bpfSource, error) {
	s := &bpfSource{dir: dir}
	programs, err := filepath.Glob("bpf/*.bpf.c")
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		out, err := exec.Command("clang-19", append(compile("bpf"), "-MM", p)...).Output()
		if err != nil {
			return nil, fmt.Errorf("list the headers of %s: %w", p, err)
		}
		if slices.Contains(strings.Fields(string(out)), source) {
			s.programs = append(s.programs, strings.TrimSuffix(filepath.Base(p), ".bpf.c"))
		}
	}
	if len(s.programs) == 0 {
		return nil, fmt.Errorf("no program includes %q", source)
	}
	return s, os.CopyFS(filepath.Join(dir, "bpf"), os.DirFS("bpf"))
}

func (s *bpfSource) tests(string) []string {
	tests := []string{"internal/kernel/datapath/connections"}
	if slices.Contains(s.programs, "tc") || slices.Contains(s.programs, "xdp") {
		tests = append(tests, "test/packet")
	}
	return tests
}

// compile returns the arguments of clang, as in tools/bpf.
func compile(folder string) []string {
	machine := "x86_64"
	if out, err := exec.Command("uname", "-m").Output(); err == nil {
		machine = strings.TrimSpace(string(out))
	}
	return []string{
		"-target", "bpfel", "-O2", "-g", "-Wall", "-mcpu=v3", "-I" + folder, "-I/usr/include/" + machine + "-linux-gnu",
	}
}

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
	for _, p := range s.programs {
		folder := filepath.Join(s.dir, "bpf")
		object := filepath.Join(s.dir, p+".o")
		args := append(compile(folder), "-c", filepath.Join(folder, p+".bpf.c"), "-o", object)
		if out, err := exec.Command("clang-19", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("compile %s: %w\n%s", p, err, out)
		}
		if out, err := exec.Command("llvm-strip-19", "-g", object).CombinedOutput(); err != nil {
			return "", fmt.Errorf("strip %s: %w\n%s", p, err, out)
		}
		if out, err := exec.Command("gzip", "-1f", object).CombinedOutput(); err != nil {
			return "", fmt.Errorf("compress %s: %w\n%s", p, err, out)
		}
		replace[filepath.Join(objects, p+"_bpfel.o.gz")] = object + ".gz"
	}
	return overlay(s.dir, replace)
}
