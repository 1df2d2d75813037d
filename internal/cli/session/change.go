package session

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// Change sends a request that changes something, and prints what came of it.
func (o *Options) Change(ctx context.Context, request func(context.Context, *v1.Client) (*http.Response, error)) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	body, err := o.Answer(request(ctx, client))
	if err != nil {
		return err
	}
	return o.Done(body)
}

// Create is Change for a request that creates an object.
func (o *Options) Create(ctx context.Context, request func(context.Context, *v1.Client) (*http.Response, error)) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	return o.Created(o.Answer(request(ctx, client)))
}

// ForceText is the parameter of a flag.
func ForceText(force bool) string {
	if !force {
		return ""
	}
	return strconv.FormatBool(force)
}

// ForceFlag is the flag that has it done all the same.
func ForceFlag(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "proceed even if your own connection uses it")
}

// Created prints the answer to a request that creates. An object that is there already is no
// failure.
func (o *Options) Created(body []byte, err error) error {
	if existsAlready(body) {
		return o.answered(body, "unchanged")
	}
	if err != nil {
		return err
	}
	return o.Done(body)
}

// existsAlready tells whether the answer refuses an object because it is there, with the same
// content.
func existsAlready(body []byte) bool {
	var e v1.Error
	return json.Unmarshal(body, &e) == nil && e.Code == http.StatusConflict &&
		!strings.Contains(e.Message, "is not applied yet") &&
		(e.Result == "lbrule-exists error" || e.Result == "fwrule-exists error" || strings.HasSuffix(e.Message, "exists already with the same content"))
}
