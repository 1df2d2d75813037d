package page_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"loxilb/test/net/rig"
)

// documentedLooks returns the looks that documents have pictures of.
func documentedLooks() []string {
	return []string{
		"overview-desktop", "services-phone", "service-desktop-dark", "drops-phone-dark", "connections-desktop", "explain-drop-desktop",
		"clients-desktop", "doctor-desktop-dark", "revisions-desktop",
	}
}

// takeScreenshots is the flag that updates the pictures of the documents.
var takeScreenshots = flag.Bool("screenshots", false, "write the pictures of docs/images")

// pictures is the directory of the documents' pictures.
const pictures = rig.Root + "/docs/images"

// look is a combination of window size and color scheme.
type look struct {
	name          string
	width, height int
	scheme        string
}

func allLooks() []look {
	return []look{{"desktop-dark", 1280, 900, "dark"}, {"phone", 360, 740, "light"}, {"phone-dark", 360, 740, "dark"}, {"desktop", 1280, 900, "light"}}
}

// checkLooks checks that the view, in each look, is accessible, logs nothing to the console, fits
// the window's width, and resembles its picture.
func (f *fixture) checkLooks(view string) {
	f.t.Helper()
	for _, l := range allLooks() {
		f.must(errors.Join(f.Resize(l.width, l.height), f.Scheme(l.scheme)))
		var wide int
		f.must(f.Eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.documentElement.scrollWidth))))", &wide))
		if wide > l.width {
			f.t.Errorf("%s, %s: %d pixels wide", view, l.name, wide)
		}
		found, err := f.Barriers()
		f.must(err)
		for _, barrier := range found {
			f.t.Errorf("%s, %s: %s", view, l.name, barrier)
		}
		f.compare(view + "-" + l.name)
	}
	f.wantNoErrors(view)
}

const (
	block         = 20   // pixels: numbers, times and fonts differ from run to run
	maxDifference = 0.04 // of the range of brightness, averaged over all blocks
)

// compare checks that a view roughly resembles its picture in the documents.
func (f *fixture) compare(name string) {
	f.t.Helper()
	file := filepath.Join(pictures, "page-"+name+".png")
	got, data, err := f.Screenshot()
	f.must(err)
	if *takeScreenshots && slices.Contains(documentedLooks(), name) {
		f.must(errors.Join(os.MkdirAll(pictures, 0o755), os.WriteFile(file, data, 0o644)))
		return
	}
	data, err = os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		if slices.Contains(documentedLooks(), name) {
			f.t.Errorf("%s is missing: go test ./test/net/page -screenshots", file)
		}
		return
	}
	f.must(err)
	want, err := png.Decode(bytes.NewReader(data))
	f.must(err)
	if d := difference(got, want); d > maxDifference {
		_, now, err := f.Screenshot()
		f.must(err)
		kept := filepath.Join(os.TempDir(), fmt.Sprintf("page-%s-%d.png", name, time.Now().Unix()))
		f.must(os.WriteFile(kept, now, 0o644))
		f.t.Errorf("%s looks otherwise by %.3f (allowed: %v): %s; if that is meant: go test ./test/net/page -screenshots", name, d, maxDifference, kept)
	}
}

// difference returns the mean difference in brightness of blocks, from 0 to 1. It returns 1 if the
// sizes differ.
func difference(a, b image.Image) float64 {
	if a.Bounds() != b.Bounds() {
		return 1
	}
	x, y := brightness(a), brightness(b)
	var sum float64
	for i := range x {
		sum += math.Abs(x[i] - y[i])
	}
	return sum / float64(len(x))
}

// brightness returns the brightness of each block.
func brightness(m image.Image) (out []float64) {
	size := m.Bounds().Size()
	for top := 0; top+block <= size.Y; top += block {
		for left := 0; left+block <= size.X; left += block {
			var sum uint64
			for y := range block {
				for x := range block {
					r, g, b, _ := m.At(left+x, top+y).RGBA()
					sum += uint64(r + g + b)
				}
			}
			out = append(out, float64(sum)/(3*0xffff*block*block))
		}
	}
	return out
}
