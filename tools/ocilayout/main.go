// Command ocilayout makes the container image of built programs: an OCI image layout with an image
// for each architecture in one index, and an archive of it. The output depends only on the
// arguments and their files, so the same programs give the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// release is the release to make.
type release struct {
	product
	version  string
	revision string // commit
	created  time.Time
	programs string // folder with a folder for each architecture, with programs and their bill of materials
	licence  string // file
}

func main() {
	r := release{}
	program := flag.String("program", "loxilb", "loxilb, or kube-loxilb")
	flag.StringVar(&r.version, "version", "", "of the programs")
	flag.StringVar(&r.revision, "revision", "", "commit that they are built of")
	created := flag.Int64("time", 0, "of the commit, in seconds since 1970")
	flag.StringVar(&r.programs, "programs", "", "folder with the programs and their bill of materials, PROGRAM.cdx.json, in a folder for each architecture")
	flag.StringVar(&r.licence, "licence", "LICENSE", "file with the licence")
	out := flag.String("out", "bin/image", "folder to write into")
	flag.Parse()
	r.product = productOf(*program)
	r.created = time.Unix(*created, 0).UTC()
	if err := r.write(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "ocilayout:", err)
		os.Exit(1)
	}
}

// write makes all for some architectures.
func (r *release) write(out string, architectures []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.image(arch)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	index, ok := mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	if !ok {
		return fmt.Errorf("the index cannot have annotations")
	}
	dir := filepath.Join(out, "oci")
	whole, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := whole.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.tag(),
		"io.containerd.image.name":          r.name(), // engines name the loaded image by it
	})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(r.name(), digest)
	return r.archive(dir, filepath.Join(out, fmt.Sprintf("%s_%s_oci.tar", r.title, r.version)))
}

// tag returns the version as tags of images may be.
func (r *release) tag() string { return strings.NewReplacer("+", "-", "~", "-").Replace(r.version) }

func (r *release) name() string { return "localhost/" + r.title + ":" + r.tag() }

// labels returns the image's OCI labels.
func (r *release) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       r.title,
		prefix + "description": r.description,
		prefix + "version":     r.version,
		prefix + "revision":    r.revision,
		prefix + "created":     r.created.Format(time.RFC3339),
		prefix + "licenses":    r.licences,
		prefix + "vendor":      "loxilb authors",
	}
}
