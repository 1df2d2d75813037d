package rig

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is a container image of one static program.
type Image struct {
	Name    string // such as localhost/web:1
	Program string // file on this machine; in the image it is /bin/ and its name
	Args    []string
}

// WriteImages writes an archive of images, which nodes import.
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

func (i Image) make() (v1.Image, error) {
	program := "/bin/" + filepath.Base(i.Program)
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
	config.Config = v1.Config{Entrypoint: append([]string{program}, i.Args...), Env: []string{"PATH=/bin"}}
	return mutate.ConfigFile(image, config)
}

// root returns the archive of the image's root file system.
func (i Image) root(program string) ([]byte, error) {
	text, err := os.ReadFile(i.Program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"bin", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: program[1:], Mode: 0o755, Size: int64(len(text))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	return b.Bytes(), w.Close()
}
