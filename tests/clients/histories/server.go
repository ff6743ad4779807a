package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// connection is the connection of one client to one server.
type connection struct {
	address string
	token   string
	client  *http.Client
	server  int
	start   time.Time
	known   *registry
}

func newConnection(run *run, server int) *connection {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
	return &connection{
		address: run.servers[server], token: run.token, client: &http.Client{Transport: transport},
		server: server, start: run.start, known: run.known,
	}
}

func (to *connection) now() int64 { return int64(time.Since(to.start)) }

// change does a create, update or deletion: at the path of `one`, without or with a body.
func (to *connection) change(ctx context.Context, its kind, one operation, body []byte) (operation, shown) {
	method := http.MethodPut
	if one.Action == remove {
		method = http.MethodDelete
	}
	one, text := to.send(ctx, method, to.token, one, body)
	var found shown
	if one.Outcome != done || one.Action == remove {
		if one.Outcome == done && strings.TrimSpace(string(text)) == "false" {
			one.Outcome = absent
		}
		return one, found
	}
	if err := json.Unmarshal(text, &found); err != nil {
		one.Outcome, one.Error = unknown, err.Error()
		return one, found
	}
	one.Modify = found.ModifyIndex
	return one, found
}

// get reads a record or a list; with `since` as a blocking query.
func (to *connection) get(ctx context.Context, its kind, one operation) (operation, []shown) {
	one, text := to.send(ctx, http.MethodGet, to.token, one, nil)
	return to.parse(its, one, text)
}

// self reads a token by its secret.
func (to *connection) self(ctx context.Context, its kind, one operation) operation {
	one, text := to.send(ctx, http.MethodGet, uuid(one.Target), one, nil)
	one, _ = to.parse(its, one, text)
	return one
}

func (to *connection) parse(its kind, one operation, text []byte) (operation, []shown) {
	if one.Outcome != done {
		return one, nil
	}
	var found []shown
	if one.Action != list {
		found = make([]shown, 1)
	}
	var err error
	if one.Action == list {
		err = json.Unmarshal(text, &found)
	} else {
		err = json.Unmarshal(text, &found[0])
	}
	if err != nil {
		one.Outcome, one.Error = failed, "not the expected JSON: "+err.Error()
		return one, nil
	}
	if one.Action == list {
		one.Records = map[string]version{}
	}
	for _, each := range found {
		its, record := its.version(each, to.known), its.record(each, to.known)
		if one.Action != list {
			one.Found = &its
		} else if record != "" {
			one.Records[record] = its
		}
	}
	return one, found
}

// send sends the request, and classifies the response.
func (to *connection) send(ctx context.Context, method, token string, one operation, body []byte) (operation, []byte) {
	one.Server = to.server
	address := to.address + one.Path
	query := url.Values{}
	if one.Since > 0 {
		query.Set("index", strconv.FormatUint(one.Since, 10))
		query.Set("wait", fmt.Sprintf("%dms", one.Wait/int64(time.Millisecond)))
	}
	if one.Stale {
		query.Set("stale", "")
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	check(err)
	request.Header.Set("X-Consul-Token", token)
	one.Call = to.now()
	response, err := to.client.Do(request)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	one.Return = to.now()
	if err != nil {
		one.Error = err.Error()
		one.Outcome = unknown
		// No connection, no request.
		if !one.isWrite() || errors.Is(err, syscall.ECONNREFUSED) {
			one.Outcome = failed
		}
		return one, nil
	}
	one.Status = response.StatusCode
	one.Index, _ = strconv.ParseUint(response.Header.Get("X-Consul-Index"), 10, 64)
	one.Outcome = outcome(one)
	if one.Outcome == unknown || one.Outcome == failed {
		one.Error = strings.TrimSpace(string(text))
	}
	return one, text
}

// outcome classifies a status. A 507 promises that nothing was written; any other failure of a change leaves it open.
func outcome(one operation) string {
	switch {
	case one.Status == http.StatusOK:
		return done
	case one.Status == http.StatusNotFound, one.Status == http.StatusForbidden && one.Action == useSecret:
		return absent
	case one.Status == http.StatusConflict && one.isWrite():
		return conflict
	case one.isWrite() && one.Status >= 500 && one.Status != http.StatusInsufficientStorage:
		return unknown
	default:
		return failed
	}
}
