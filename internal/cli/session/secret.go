package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// ReadSecret returns the first line of the file that a flag names; - is standard input.
func (o *Options) ReadSecret(flag, path string) (string, error) {
	line, err := o.firstLine(path)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if err != nil {
		return "", fmt.Errorf("--%s %q cannot be read: %w", flag, path, err)
	}
	return line, nil
}

func (o *Options) firstLine(path string) (string, error) {
	in := o.Env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close() //nolint:errcheck // it is only read
		in = f
	}
	line, err := bufio.NewReader(io.LimitReader(in, 64<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("its first line is empty")
	}
	return line, nil
}
