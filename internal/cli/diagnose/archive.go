package diagnose

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// partBytes and allBytes bound the uncompressed content of the archive.
	partBytes = 4 << 20
	allBytes  = 64 << 20
	// partTime is the default time limit of a part.
	partTime = 15 * time.Second
)

// archivePart is a file of the archive.
type archivePart struct {
	Name    string // its path
	What    string // description for the README
	Clients bool   // it may have addresses of clients
	Time    time.Duration
	Collect func(context.Context) ([]byte, error)
}

// archiveOptions are the options of an archive.
type archiveOptions struct {
	Folder        string // of all files in the archive
	Time          time.Time
	Scrub         scrubber
	WithAddresses bool // keep addresses of clients
}

// archiveOutcome is the result of a part.
type archiveOutcome struct {
	Name  string
	Bytes int
	Took  time.Duration
	Cut   bool
	Err   error
}

// writeArchive writes the parts in order, then a manifest with the result of each. A failed part
// only has its error there.
func writeArchive(ctx context.Context, w io.Writer, o archiveOptions, parts []archivePart) ([]archiveOutcome, error) {
	packed := gzip.NewWriter(w)
	packed.ModTime = o.Time
	out := &archive{tar.NewWriter(packed), o, 0}
	if err := out.add("README", []byte(archiveReadme(o, parts))); err != nil {
		return nil, err
	}
	var done []archiveOutcome
	for i := range parts {
		one, err := out.collect(ctx, &parts[i])
		done = append(done, one)
		if err != nil {
			return done, err
		}
	}
	err := out.add("MANIFEST", []byte(o.Scrub.Text(archiveManifest(done), true)))
	return done, errors.Join(err, out.Close(), packed.Close())
}

type archive struct {
	*tar.Writer
	archiveOptions
	bytes int
}

// collect adds a part, and returns an error if the archive cannot be written.
func (a *archive) collect(ctx context.Context, p *archivePart) (archiveOutcome, error) {
	began := time.Now()
	text, err := runPart(ctx, p)
	one := archiveOutcome{Name: p.Name, Took: time.Since(began), Err: err}
	if len(text) == 0 {
		return one, nil
	}
	if room := max(0, min(partBytes, allBytes-a.bytes)); len(text) > room { // before the search for secrets, which takes time; the text is marked as truncated
		text, one.Cut = text[:room], true
	}
	clean := []byte(a.Scrub.Text(string(text), a.WithAddresses || !p.Clients))
	one.Bytes = len(clean)
	return one, a.add(p.Name, clean)
}

// runPart collects a part, and returns when its time is over even if Collect still runs.
func runPart(ctx context.Context, p *archivePart) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Time, partTime))
	defer cancel()
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := p.Collect(ctx)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("not done in %s", cmp.Or(p.Time, partTime))
	}
}

func (a *archive) add(name string, text []byte) error {
	a.bytes += len(text)
	err := a.WriteHeader(&tar.Header{Name: a.Folder + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.Time, Format: tar.FormatPAX})
	if err == nil {
		_, err = a.Writer.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func archiveManifest(done []archiveOutcome) string {
	var b strings.Builder
	for _, o := range done {
		fmt.Fprintf(&b, "%-28s %9d bytes %6.1f s", o.Name, o.Bytes, o.Took.Seconds())
		if o.Cut {
			b.WriteString(" cut: it is longer")
		}
		if o.Err != nil {
			fmt.Fprintf(&b, " failed: %s", strings.ReplaceAll(o.Err.Error(), "\n", "; "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func archiveReadme(o archiveOptions, parts []archivePart) string {
	var b strings.Builder
	fmt.Fprintf(&b, "State of loxilb on %s.\n\n", o.Time.UTC().Format(time.RFC3339))
	b.WriteString("Tokens, passwords, keys, headers and probe contents are replaced by [removed].\n")
	if o.WithAddresses {
		b.WriteString("CLIENT ADDRESSES ARE INCLUDED (--with-addresses).\n\n")
	} else {
		b.WriteString("Client addresses are replaced by [address]; addresses of services, endpoints and this machine remain.\n\n")
	}
	for _, p := range parts {
		fmt.Fprintf(&b, "%-28s %s\n", p.Name, p.What)
	}
	fmt.Fprintf(&b, "%-28s %s\n", "MANIFEST", "the result of each part: its size, how long it took, or why it is missing")
	return b.String()
}
