package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/contract"
	"loxilb/internal/manifest"
)

// savedFiles are the contract's files, and the list that each holds.
var savedFiles = []struct{ flag, short, kind, file, list, what string }{
	{"lb", "l", manifest.Loadbalancer, "lbconfig.txt", "lbAttr", "services"},
	{"endpoint", "", manifest.Endpoint, "EPconfig.txt", "Attr", "endpoints"},
	{"firewall", "", manifest.Firewall, "FWconfig.txt", "fwAttr", "firewall rules"},
}

const defaultConfigPath = "/etc/loxilb/"

func saveCommand(o *options) *cobra.Command {
	var file, folder string
	var all, session, ulcl, bfd bool
	chosen := make([]bool, len(savedFiles))
	cmd := &cobra.Command{
		Use:   "save",
		Short: "write what is wanted to files that apply takes",
		Long: "--file writes everything as YAML. The other flags write the files of the existing loxilb, one for each kind, below --config-path; the file that\n" +
			"was there is kept with .bk behind its name. Services that a controller manages are left out.",
		Example: "  loxicmd save -f all.yaml\n  loxicmd save --all\n  loxicmd save --lb -c /tmp/",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case session || ulcl:
				return refused("%s", contract.NoSessions)
			case bfd:
				return refused("%s", contract.NoBFD)
			case file != "":
				return o.saveYAML(cmd, file)
			}
			for i := range savedFiles {
				if all || chosen[i] {
					if err := o.saveList(cmd, folder, i); err != nil {
						return err
					}
				}
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
	fl.BoolVar(&session, "session", false, "sessions, which this build does not have")
	fl.BoolVar(&ulcl, "ulcl", false, "session classifiers, which this build does not have")
	fl.BoolVar(&bfd, "bfd", false, "BFD sessions, which this build does not have")
	selectors = append(selectors, "session", "ulcl", "bfd")
	fl.StringVarP(&folder, "config-path", "c", defaultConfigPath, "folder of the files")
	cmd.MarkFlagsMutuallyExclusive(selectors...)
	cmd.MarkFlagsOneRequired(selectors...)
	return cmd
}

// objects are those of a kind, or all, as the server would take them again.
func (o *options) objects(cmd *cobra.Command, kind string) ([]json.RawMessage, error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	answer, err := o.answer(client.GetObjects(cmd.Context(), &v1.GetObjectsParams{Kind: kind}))
	if err != nil {
		return nil, err
	}
	var list struct {
		Objects []json.RawMessage `json:"objects"`
	}
	return list.Objects, decode(answer, &list)
}

func (o *options) saveYAML(cmd *cobra.Command, path string) error {
	list, err := o.objects(cmd, "")
	if err != nil {
		return err
	}
	text, err := manifest.YAML(list)
	if err != nil {
		return err
	}
	if path == "-" {
		return o.print(string(text))
	}
	return o.saveFile(path, text, len(list))
}

func (o *options) saveList(cmd *cobra.Command, folder string, i int) error {
	s := savedFiles[i]
	list, err := o.objects(cmd, s.kind)
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
	return o.saveFile(filepath.Join(folder, s.file), out.Bytes(), len(list))
}

func (o *options) saveFile(path string, content []byte, objects int) error {
	if err := replaceFile(path, content); err != nil {
		return fmt.Errorf("%s is as it was: %w", path, err)
	}
	return o.print(fmt.Sprintf("success: %d objects in %s\n", objects, path))
}

// replaceFile writes a file so that there is always a whole one by its name, and keeps the former one with .bk behind its name.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".save-*") // for its owner alone
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has another name by then, or is of no use
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
		// Two names of one file are not renamed onto each other: the backup was that file already.
		if err := os.Remove(former); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.Rename(f.Name(), path)
}
