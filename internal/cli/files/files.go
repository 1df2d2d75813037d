package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"loxilb/internal/api/manifest"
	"loxilb/internal/cli/session"
)

// maxFile is the server's limit of a request's size.
const maxFile = 64 << 20

// source is a file of objects, and the default kind of its objects.
type source struct{ path, assume string }

// readObjects reads files and folders, and reports all errors in any of them. "-" is standard
// input.
func readObjects(o *session.Options, sources []source) ([]manifest.Object, error) {
	var objects []manifest.Object
	var wrong manifest.Errors
	for _, s := range sources {
		paths, err := filesOf(s.path)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			data, err := readFile(o, path)
			if err != nil {
				return nil, err
			}
			found, errs := manifest.Read(path, data, s.assume)
			if len(found) == 0 && len(errs) == 0 && len(paths) == 1 {
				return nil, fmt.Errorf("%s contains no object", path)
			}
			for i := range found {
				if e := readWords(&found[i]); e != nil {
					errs = append(errs, *e)
				}
			}
			objects, wrong = append(objects, found...), append(wrong, errs...)
		}
	}
	if len(wrong) > 0 {
		return nil, session.Refused("nothing was changed:\n%w", wrong)
	}
	return objects, nil
}

// filesOf returns the files of a path: itself, or the YAML and JSON files of a folder and its
// subfolders, by name.
func filesOf(path string) (list []string, err error) {
	info, err := os.Stat(path)
	if path == "-" || err == nil && !info.IsDir() {
		return []string{path}, nil
	}
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		hidden := at != path && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case d.IsDir() && hidden:
			return filepath.SkipDir
		case !d.IsDir() && !hidden && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(at)):
			if info, err := os.Stat(at); err != nil || !info.Mode().IsRegular() { // a pipe may never have a writer
				return errors.Join(fmt.Errorf("%s is not a regular file", at), err)
			}
			list = append(list, at)
		}
		return nil
	})
	if err == nil && len(list) == 0 {
		return nil, fmt.Errorf("%s contains no .yaml, .yml or .json file", path)
	}
	return list, err
}

// readFile reads a file, or standard input for -.
func readFile(o *session.Options, path string) ([]byte, error) {
	in := o.Env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // it is only read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return data, nil
}
