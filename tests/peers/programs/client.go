// Go's net/http as a client: ADDRESS CA.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

func content(size int) []byte {
	content := make([]byte, size)
	for n := range content {
		content[n] = byte(n / 7 * 31 % 251)
	}
	return content
}

func whole(response *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}

func check(client *http.Client, address string, protocol string) error {
	list, err := whole(client.Get(address + "/files/list"))
	if err != nil {
		return err
	}
	names := strings.Fields(string(list))
	failures := make(chan error, 20*len(names))
	var tasks sync.WaitGroup
	for round := 0; round < 20; round++ {
		for _, name := range names {
			tasks.Add(1)
			go func() {
				defer tasks.Done()
				response, err := client.Get(address + "/files/" + name)
				if err == nil && response.Proto != protocol {
					err = errors.New(response.Proto)
				}
				body, err := whole(response, err)
				size, _ := strconv.Atoi(name)
				if err == nil && !bytes.Equal(body, content(size)) {
					err = errors.New("other content")
				}
				if err != nil {
					failures <- fmt.Errorf("%s: %w", name, err)
				}
			}()
		}
	}
	tasks.Wait()
	close(failures)
	for failure := range failures {
		return failure
	}
	for _, size := range []int{1, 100_000, 5_000_000} {
		// Of unknown length, and of a known one.
		for _, body := range []io.Reader{io.MultiReader(bytes.NewReader(content(size))), bytes.NewReader(content(size))} {
			echo, err := whole(client.Post(address+"/app/echo", "application/octet-stream", body))
			if err != nil {
				return err
			}
			if !bytes.Equal(echo, content(size)) {
				return errors.New("another echo")
			}
		}
	}
	return nil
}

func main() {
	address := os.Args[1]
	pem, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		config := &tls.Config{RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: protocol == "HTTP/2.0", MaxConnsPerHost: 8}
		if protocol == "HTTP/1.1" {
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		if err := check(&http.Client{Transport: transport}, address, protocol); err != nil {
			fmt.Println(protocol, err)
			os.Exit(1)
		}
	}
}
