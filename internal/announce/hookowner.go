package announce

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may have, as in the kernel.
const maxLinks = 40

// resolveRootOwned resolves the symbolic links of a file that root will run. It refuses the file if
// users other than root could change or replace it, or any folder or link on its path.
func resolveRootOwned(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	var info fs.FileInfo
	at, rest, links := "/", strings.Split(file, "/"), 0
	for len(rest) > 0 && err == nil {
		next := filepath.Join(at, rest[0]) // for .. this is the parent: at has no links
		rest = rest[1:]
		info, err = checkRootOnly(next)
		switch {
		case err != nil:
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
		case links == maxLinks:
			err = fmt.Errorf("%s has more than %d symbolic links", file, maxLinks)
		default:
			links++
			var link string
			link, err = os.Readlink(next)
			if filepath.IsAbs(link) {
				at = "/"
			}
			rest = append(strings.Split(link, "/"), rest...)
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", at)
	}
	return at, err
}

// checkRootOnly refuses a file or folder that root does not own, or that others can write. It
// accepts a sticky folder, where others cannot replace files of root.
func checkRootOnly(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode()
	switch {
	case !ok || st.Uid != 0:
		return nil, fmt.Errorf("%s is not owned by root", path)
	case mode&fs.ModeSymlink != 0 || mode.IsDir() && mode&fs.ModeSticky != 0:
	case mode.Perm()&0o022 != 0:
		return nil, fmt.Errorf("users other than root may write %s: chmod go-w %s", path, path)
	}
	return info, nil
}
