package rig

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is a container image with one program and the files that it needs.
type Image struct {
	Name    string // such as localhost/web:1
	Program string // file of this machine
	Dir     string // directory of the program in the image; empty: /bin
	Args    []string
	Default []string          // more arguments, which pods may replace
	Files   map[string]string // files of this machine, by their paths in the image
	Links   map[string]string // targets of symbolic links, by the links' paths
}

// WriteImages writes an archive of images that nodes can import.
func WriteImages(archive string, images ...Image) error {
	all := map[name.Reference]v1.Image{}
	for _, i := range images {
		reference, err := name.NewTag(i.Name)
		if err != nil {
			return err
		}
		if all[reference], err = i.make(); err != nil {
			return fmt.Errorf("make image %s: %w", i.Name, err)
		}
	}
	return tarball.MultiRefWriteToFile(archive, all)
}

// make builds the image.
func (i Image) make() (v1.Image, error) {
	program := filepath.Join("/", cmp.Or(i.Dir, "bin"), filepath.Base(i.Program))
	root, err := i.root(program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: append([]string{program}, i.Args...), Cmd: i.Default, Env: []string{"PATH=/bin"}}
	return mutate.ConfigFile(image, config)
}

// root returns the archive of the image's root file system.
func (i Image) root(program string) ([]byte, error) {
	files := maps.Clone(i.Files)
	if files == nil {
		files = map[string]string{}
	}
	files[program] = i.Program
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range directories(files, i.Links) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(files[path])
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path[1:], Mode: 0o755, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(i.Links)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: path[1:], Linkname: i.Links[path], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// directories returns the directories of files and links, parents first.
func directories(files, links map[string]string) []string {
	found := map[string]bool{"tmp": true}
	for _, paths := range []map[string]string{files, links} {
		for path := range paths {
			for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
				found[dir[1:]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
