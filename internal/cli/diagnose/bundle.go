package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loxilb/internal/cli/session"
)

// bundleTime bounds the total time of a bundle.
const bundleTime = 4 * time.Minute

func bundleCommand(o *session.Options) *cobra.Command {
	var file string
	var addresses bool
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write a support bundle: diagnostics in one file, without secrets",
		Long: "Collects versions, configuration, statuses, events, the log, counters, findings of doctor and\n" +
			"verify, interfaces, routes, neighbours, queues, BPF programs and maps into a file readable only\n" +
			"by its owner. Tokens, passwords, keys, headers, probe contents and client addresses are removed.\n" +
			"Without a daemon or a diagnostic program the other parts are still collected; MANIFEST lists\n" +
			"what is missing. It has at most 64 MB, and takes at most four minutes.",
		Example: "  loxicmd support-bundle\n  loxicmd support-bundle -o /tmp/x.tar.gz --with-addresses",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeBundle(cmd.Context(), o, file, addresses)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&file, "output", "o", "", "file to write, which must not exist (default loxilb-support-HOST-TIME.tar.gz in the current folder)")
	fs.BoolVar(&addresses, "with-addresses", false, "keep client addresses in the bundle")
	return cmd
}

func writeBundle(ctx context.Context, o *session.Options, file string, addresses bool) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTime)
	defer cancel()
	now := time.Now().UTC().Truncate(time.Second)
	host, _ := os.Hostname()
	name := strings.Join([]string{"loxilb-support", cmp.Or(host, "host"), now.Format("20060102-150405")}, "-")
	file = cmp.Or(file, name+".tar.gz")
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return session.Refused("%s already exists: choose another file with -o", file)
	}
	if err != nil {
		return session.Refused("cannot write the bundle: %w", err)
	}
	ask := &bundleClient{o: o}
	var keep []netip.Addr
	if !addresses {
		keep = ask.ownAddresses(ctx)
	}
	done, err := writeArchive(ctx, out, archiveOptions{
		Folder: name, Time: now, Scrub: newScrubber(knownSecrets(o), keep), WithAddresses: addresses,
	}, append(ask.parts(), machineParts()...))
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return session.Refused("cannot write the bundle: %w", errors.Join(err, os.Remove(file)))
	}
	return o.Print(bundleText(file, done, addresses))
}

func bundleText(file string, done []archiveOutcome, addresses bool) string {
	var b strings.Builder
	failed := 0
	for _, one := range done {
		if one.Err != nil {
			failed++
		}
	}
	fmt.Fprintf(&b, "%s has %d parts", file, len(done)-failed)
	if failed > 0 {
		fmt.Fprintf(&b, "; %d could not be collected (see its MANIFEST)", failed)
	}
	if addresses {
		b.WriteString("; it contains client addresses")
	}
	b.WriteString("\n")
	return b.String()
}

// knownSecrets returns the readable secrets of this machine: they are removed literally, wherever
// they occur.
func knownSecrets(o *session.Options) (out []string) {
	for _, path := range []string{o.TokenPath(), "/etc/loxilb/manual_token"} {
		if b, err := os.ReadFile(filepath.Clean(path)); err == nil && len(b) < 1<<16 {
			for line := range strings.Lines(string(b)) {
				out = append(out, line)
			}
		}
	}
	return append(out, o.Token())
}
