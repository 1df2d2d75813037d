package main

import (
	"bytes"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image returns the image for one architecture: a layer, and its configuration.
func (r *release) image(arch string) (v1.Image, error) {
	files, err := r.rootFiles(arch)
	if err != nil {
		return nil, err
	}
	var root bytes.Buffer
	if err := writeTar(&root, files, r.created); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "tools/image", Comment: r.title + " " + r.version},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Author = "linux", arch, v1.Time{Time: r.created}, "loxilb authors"
	config.Config = v1.Config{
		User:        r.user,
		Env:         []string{"PATH=/usr/sbin:/usr/bin"},
		Entrypoint:  []string{"/" + r.programPaths[0]},
		WorkingDir:  "/",
		StopSignal:  "SIGTERM",
		Labels:      r.labels(),
		Healthcheck: r.health, // not of OCI, but Docker, Podman and nerdctl read it where OCI has nothing
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	image, ok := mutate.Annotations(image, r.labels()).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("it cannot have annotations")
	}
	return image, nil
}
