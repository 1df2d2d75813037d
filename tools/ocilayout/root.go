package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// file is a file, a folder (content nil) or a link of the root file system.
type file struct {
	path    string // without a leading slash; a trailing slash makes it a folder
	mode    int64
	content []byte
	link    string
}

// rootFiles returns the image's files: programs, and folders to mount at, since its root may be
// read-only. It has no shell and no library.
func (r *release) rootFiles(arch string) ([]file, error) {
	list := []file{
		{path: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/:/sbin/nologin\n")},
		{path: "etc/group", mode: 0o644, content: []byte("root:x:0:\n")},
	}
	for path, target := range r.links {
		list = append(list, file{path: path, mode: 0o777, link: target})
	}
	for _, path := range r.programPaths {
		content, err := os.ReadFile(filepath.Join(r.programs, arch, filepath.Base(path)))
		if err != nil {
			return nil, err
		}
		list = append(list, file{path: path, mode: 0o755, content: content})
	}
	sbom := r.title + ".cdx.json"
	for path, from := range map[string]string{
		"usr/share/sbom/" + sbom:                filepath.Join(r.programs, arch, sbom),
		"usr/share/doc/" + r.title + "/LICENSE": r.licence,
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		list = append(list, file{path: path, mode: 0o644, content: content})
	}
	for path, mode := range r.folders {
		list = append(list, file{path: path, mode: mode})
	}
	return withParents(list), nil
}

// withParents adds the parent folders of files, each before its content.
func withParents(list []file) []file {
	there := map[string]bool{}
	for _, f := range list {
		there[f.path] = true
	}
	for _, f := range slices.Clone(list) {
		for dir := filepath.Dir(filepath.Clean(f.path)); dir != "."; dir = filepath.Dir(dir) {
			if !there[dir+"/"] {
				there[dir+"/"] = true
				list = append(list, file{path: dir + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(list, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return list
}

// writeTar writes files of root's, all of one time.
func writeTar(w io.Writer, list []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range list {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Linkname: f.link}
		switch {
		case f.path[len(f.path)-1] == '/':
			h.Typeflag = tar.TypeDir
		case f.link != "":
			h.Typeflag = tar.TypeSymlink
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}

// archive packs a layout into one file.
func (r *release) archive(dir, to string) error {
	var list []file
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		list = append(list, file{path: path, mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	return errors.Join(writeTar(&out, withParents(list), r.created), os.WriteFile(to, out.Bytes(), 0o644))
}
