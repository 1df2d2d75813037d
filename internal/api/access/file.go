package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The file is in the state directory, not in the store: a rollback must not restore a deleted user,
// and an export must not contain hashes.
const fileName = "users.json"

const fileFormat = 1

// content is the content of the file.
type content struct {
	Format   int        `json:"format"`
	NextID   int64      `json:"nextId"`
	Users    []*user    `json:"users"`
	Sessions []*session `json:"sessions"`

	replaced chan struct{} // closed when another content replaces this one
}

type user struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	Role     string    `json:"role"`
	Password string    `json:"password"` // hashed
	Created  time.Time `json:"created"`
}

// session is an issued token.
type session struct {
	Token   string    `json:"token"` // SHA-256, in hexadecimal
	User    int64     `json:"user"`
	Expires time.Time `json:"expires"`
}

// read parses the file. A damaged file is an error, not an empty list: damage must neither remove
// all users nor go unnoticed.
func read(dir string) (*content, error) {
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &content{Format: fileFormat, NextID: 1}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	c := &content{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): restore it, or delete it and create the users again", path, err)
	}
	if c.Format != fileFormat {
		return nil, fmt.Errorf("%s is of format %d, and this version supports %d: a later version wrote it", path, c.Format, fileFormat)
	}
	for _, u := range c.Users {
		if _, err := ParseRole(u.Role); err != nil || u.Name == "" || u.ID <= 0 {
			return nil, fmt.Errorf("%s is damaged (user %d): restore it, or delete it and create the users again", path, u.ID)
		}
		c.NextID = max(c.NextID, u.ID+1)
	}
	return c, nil
}

// write replaces the file: after a crash at any moment the old or the new one exists.
func (c *content) write(dir string) (err error) {
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the users: %w", err)
		}
	}()
	path := filepath.Join(dir, fileName)
	next := path + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
