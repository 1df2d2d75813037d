package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
)

// savedFiles are the contract's files, and the list in each.
var savedFiles = []struct{ flag, short, kind, file, list, what string }{
	{"lb", "l", kinds.ServiceDocument, "lbconfig.txt", "lbAttr", "services"},
	{"endpoint", "", kinds.EndpointDocument, "EPconfig.txt", "Attr", "endpoints"},
	{"firewall", "", kinds.RuleDocument, "FWconfig.txt", "fwAttr", "firewall rules"},
	{"session", "", kinds.SessionDocument, "sessionconfig.txt", "sessionAttr", "sessions"},
	{"ulcl", "", kinds.SessionFlowDocument, "sessionulclconfig.txt", "ulclAttr", "session classifiers"},
	{"bfd", "", kinds.BFDDocument, "BFDconfig.txt", "Attr", "BFD sessions"},
}

const defaultConfigPath = "/etc/loxilb/"

func saveCommand(o *session.Options) *cobra.Command {
	var file, folder string
	var all, ip bool
	chosen := make([]bool, len(savedFiles))
	cmd := &cobra.Command{
		Use:   "save",
		Short: "Save the configuration to files for apply",
		Long: "--file writes everything as YAML. The other flags write the files of the existing loxilb, one\n" +
			"per kind, below --config-path, which is created if missing. An existing file is kept with the\n" +
			"suffix .bk. Services managed by a controller are left out.",
		Example: "  loxicmd save -f all.yaml\n  loxicmd save --all\n  loxicmd save --lb -c /tmp/\n  loxicmd save --ip",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				return saveYAML(o, cmd, file)
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return fmt.Errorf("cannot create the folder of the files: %w", err)
			}
			for i := range savedFiles {
				if all || chosen[i] {
					if err := saveList(o, cmd, folder, i); err != nil {
						return err
					}
				}
			}
			if all || ip {
				return saveInterfaces(cmd.Context(), o, folder)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVarP(&file, "file", "f", "", "write everything to a file of YAML; - is standard output")
	fl.BoolVarP(&all, "all", "a", false, "write all of the files below")
	selectors := []string{"file", "all"}
	for i, s := range savedFiles {
		fl.BoolVarP(&chosen[i], s.flag, s.short, false, "write the "+s.what+" to "+s.file)
		selectors = append(selectors, s.flag)
	}
	fl.BoolVarP(&ip, "ip", "i", false, "write addresses, routes, neighbors, VLANs and tunnels to "+ipconfigFolder+"/INTERFACE/")
	selectors = append(selectors, "ip")
	fl.StringVarP(&folder, "config-path", "c", defaultConfigPath, "folder of the files")
	cmd.MarkFlagsMutuallyExclusive(selectors...)
	cmd.MarkFlagsOneRequired(selectors...)
	return cmd
}

// objects returns the objects of a kind, or all, in the form that the server accepts.
func objects(o *session.Options, cmd *cobra.Command, kind string) ([]json.RawMessage, error) {
	client, err := o.Client()
	if err != nil {
		return nil, err
	}
	answer, err := o.Answer(client.GetObjects(cmd.Context(), &v1.GetObjectsParams{Kind: kind}))
	if err != nil {
		return nil, err
	}
	var list struct {
		Objects []json.RawMessage `json:"objects"`
	}
	return list.Objects, session.Decode(answer, &list)
}

func saveYAML(o *session.Options, cmd *cobra.Command, path string) error {
	list, err := objects(o, cmd, "")
	if err != nil {
		return err
	}
	for i := range list {
		if list[i], err = inWords(list[i]); err != nil {
			return err
		}
	}
	text, err := manifest.YAML(list)
	if err != nil {
		return err
	}
	if path == "-" {
		return o.Print(string(text))
	}
	return saveFile(o, path, text, len(list))
}

func saveList(o *session.Options, cmd *cobra.Command, folder string, i int) error {
	s := savedFiles[i]
	list, err := objects(o, cmd, s.kind)
	if err != nil {
		return err
	}
	specs := make([]json.RawMessage, len(list))
	for i, object := range list {
		var one v1.Object
		if err := json.Unmarshal(object, &one); err != nil {
			return err
		}
		specs[i] = one.Spec
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string][]json.RawMessage{s.list: specs}); err != nil {
		return err
	}
	return saveFile(o, filepath.Join(folder, s.file), out.Bytes(), len(list))
}

func saveFile(o *session.Options, path string, content []byte, objects int) error {
	if err := replaceFile(path, content); err != nil {
		return fmt.Errorf("%s is unchanged: %w", path, err)
	}
	return o.Print(fmt.Sprintf("success: %s saved to %s\n", session.Count(objects, "object"), path))
}

// newFile writes a file that only its owner can read, and syncs it to disk.
func newFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// isReplaceable reports whether a path is a regular file, a link to one, or missing. Links to open
// files, such as /dev/stdout, are none.
func isReplaceable(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return true // it is missing, or creating a file there fails with the reason
	}
	if info.Mode().Type() != fs.ModeSymlink {
		return info.Mode().IsRegular()
	}
	if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "/proc/") {
		return false
	}
	target, err := os.Stat(path)
	return err != nil || target.Mode().IsRegular()
}

// replaceFile replaces a file atomically, and keeps the former one as NAME.bk.
func replaceFile(path string, content []byte) error {
	if !isReplaceable(path) {
		return errors.New("it is not a regular file (allowed: a file, or -f - for standard output)")
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".save-*") // for its owner alone
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it was renamed by then, or is useless
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	former := f.Name() + ".bk"
	switch err := os.Link(path, former); {
	case err == nil:
		if err := os.Rename(former, path+".bk"); err != nil {
			return errors.Join(err, os.Remove(former))
		}
		// A rename between two names of one file does nothing: the backup was that file already.
		if err := os.Remove(former); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.Rename(f.Name(), path)
}
