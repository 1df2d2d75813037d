package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
)

// ipconfigFolder is the contract's folder of interface configurations, inside that of its files.
const ipconfigFolder = "ipconfig"

// interfaceFlags are the flags of apply for that folder.
type interfaceFlags struct {
	file   string
	one    string // interface
	routes bool
	folder string
}

func (f *interfaceFlags) register(fl *pflag.FlagSet) {
	fl.StringVarP(&f.file, "ip", "i", "", "file with the configuration of an interface, as written by save --ip, or the folder of all")
	fl.StringVar(&f.one, "per-intf", "", "apply the configuration of this interface from its folder below --config-path")
	fl.BoolVarP(&f.routes, "ipv4route", "r", false, "with --per-intf: apply only its routes")
	fl.StringVarP(&f.folder, "config-path", "c", defaultConfigPath+ipconfigFolder+"/", "with --per-intf: folder that contains the interfaces' folders")
}

// check refuses flags that do not go together.
func (f *interfaceFlags) check() error {
	switch {
	case f.routes && f.one == "":
		return errors.New("--ipv4route needs --per-intf")
	case f.one != "" && f.file != "":
		return errors.New("--ip cannot be combined with --per-intf")
	case f.one == "." || f.one == ".." || strings.ContainsAny(f.one, "/\x00"):
		return fmt.Errorf("--per-intf %q is not an interface name", f.one)
	}
	return nil
}

// path returns the path to read, or "" without one.
func (f *interfaceFlags) path() string {
	if f.one != "" {
		return filepath.Join(f.folder, f.one)
	}
	return f.file
}

// read finds the objects.
func (f *interfaceFlags) read() ([]manifest.Object, error) {
	path := f.path()
	if path == "" {
		return nil, nil
	}
	r := &interfaceReader{}
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case f.one != "":
		err = readInterface(r, path, f.routes)
	case info.IsDir():
		err = readInterfaces(r, path)
	default:
		err = readLines(r, path)
	}
	r.Finish()
	switch {
	case err != nil:
		return nil, err
	case len(r.Wrong) > 0:
		return nil, session.Refused("nothing was changed:\n%w", r.Wrong)
	case len(r.Objects) == 0:
		return nil, fmt.Errorf("%s contains no object", path)
	}
	return r.Objects, nil
}

// readInterfaces reads a folder of folders: first the files that create interfaces, then the files
// that depend on them.
func readInterfaces(r *interfaceReader, path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, name := range interfaceFiles() {
		for _, e := range entries {
			if e.IsDir() {
				err = errors.Join(err, readPresent(r, filepath.Join(path, e.Name(), name)))
			}
		}
	}
	return err
}

// readInterface reads the folder of an interface.
func readInterface(r *interfaceReader, path string, routes bool) (err error) {
	files := interfaceFiles()
	if routes {
		files = routeFiles()
	}
	for _, name := range files {
		err = errors.Join(err, readPresent(r, filepath.Join(path, name)))
	}
	return err
}

// readPresent reads a file that may be missing.
func readPresent(r *interfaceReader, path string) error {
	err := readLines(r, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// maxLines is the maximum size of an interface's file in bytes.
const maxLines = 1 << 20

// readLines reads a file. It skips pipes, which may never have a writer.
func readLines(r *interfaceReader, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	text, err := io.ReadAll(io.LimitReader(f, maxLines+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxLines:
		return fmt.Errorf("%s is larger than %d MiB", path, maxLines>>20)
	}
	r.Read(path, string(text))
	return nil
}

// saveInterfaces writes the folder of interface configurations. The former one is kept as NAME.bk.
func saveInterfaces(ctx context.Context, o *session.Options, folder string) error {
	c, left, err := interfaces(ctx, o)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, ipconfigFolder)
	if err := replaceFolder(path, c); err != nil {
		return err
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(o.Env.Stderr, "Warning: routes not saved: %d, which %s\n", left[why], why)
	}
	return o.Print(fmt.Sprintf("success: %d lines of %d interfaces in %s\n", c.Lines(), len(c), path))
}

// interfaces requests the interface configurations from the server.
func interfaces(ctx context.Context, o *session.Options) (interfaceConfig, interfaceLeftOut, error) {
	client, err := o.Client()
	if err != nil {
		return nil, nil, err
	}
	var addresses v1.AddressList
	var routes v1.RouteList
	var wanted struct {
		Objects []v1.Object `json:"objects"`
	}
	answer, err := o.Answer(client.GetAddresses(ctx))
	if err == nil {
		err = session.Decode(answer, &addresses)
	}
	if err == nil {
		if answer, err = o.Answer(client.GetRoutes(ctx, &v1.GetRoutesParams{})); err == nil {
			err = session.Decode(answer, &routes)
		}
	}
	if err == nil {
		list := []string{kinds.VLANDocument, kinds.VLANMemberDocument, kinds.VXLANDocument, kinds.VXLANPeerDocument, kinds.NeighborDocument, kinds.FDBDocument}
		if answer, err = o.Answer(client.GetObjects(ctx, &v1.GetObjectsParams{Kind: strings.Join(list, ",")})); err == nil {
			err = session.Decode(answer, &wanted)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	c, left, err := newInterfaceConfig(addresses.IpAttr, routes.RouteAttr, wanted.Objects)
	if err != nil {
		return nil, nil, session.Refused("unexpected answer from the server: %w", err)
	}
	return c, left, nil
}
