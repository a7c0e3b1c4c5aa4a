//! An OCI image: the program, the libraries that it needs, and a configuration for a root file system that
//! no process can write to.
//!
//! A directory in the layout of the OCI image specification, packed as a tar file: `podman load` and `skopeo`
//! read it. `docker load` reads it by its `manifest.json`. The types are Docker's, because OCI's have no
//! health check, and podman then ignores it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Machine;
use super::stage::{self, Stage};
use crate::workspace::{output, root};

/// Where libraries are looked for, besides the loader's own place.
const LIBRARIES: &[&str] = &["lib64", "lib", "usr/lib64", "usr/lib"];

/// What the parts of the image are.
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// The user of the server.
const USER: &str = "65532:65532";

/// Makes the image; returns its path.
pub(super) fn make(stage: &Stage, machine: &Machine, version: &str) -> Result<PathBuf, String> {
    let folder = stage.folder.join("image");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    let tree = folder.join("root");
    fill(&tree, stage, machine)?;
    let layout = folder.join("layout");
    let layer = folder.join("layer.tar");
    pack(&tree, &layer)?;
    let layer = blob(&layout, &fs::read(&layer).map_err(|error| error.to_string())?)?;
    let config = blob(&layout, config(machine, &layer).as_bytes())?;
    let manifest = blob(
        &layout,
        format!(
            r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{},"layers":[{}]}}"#,
            config.descriptor(CONFIG),
            layer.descriptor(LAYER),
        )
        .as_bytes(),
    )?;
    let of_manifest = manifest.descriptor(MANIFEST);
    let of_manifest = of_manifest.trim_end_matches('}');
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{of_manifest},"annotations":{{"org.opencontainers.image.ref.name":"nowait:{version}"}}}}]}}"#
    );
    stage::write(&layout.join("index.json"), index.as_bytes(), 0o644)?;
    stage::write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    let for_docker = format!(
        r#"[{{"Config":"{}","RepoTags":["nowait:{version}"],"Layers":["{}"]}}]"#,
        config.path(),
        layer.path()
    );
    stage::write(&layout.join("manifest.json"), for_docker.as_bytes(), 0o644)?;
    let made = stage.folder.join(format!("nowait_{version}_{}.oci.tar", machine.deb));
    pack(&layout, &made)?;
    Ok(made)
}

/// The files of the image.
fn fill(tree: &Path, stage: &Stage, machine: &Machine) -> Result<(), String> {
    let program = stage.root.join("usr/sbin/nowait");
    copy(&program, &tree.join("usr/sbin/nowait"), 0o755)?;
    let conf = stage.root.join("etc/nowait");
    for entry in fs::read_dir(&conf).map_err(|error| error.to_string())?.flatten() {
        if entry.path().is_file() && entry.file_name() != "nowait.conf" {
            copy(&entry.path(), &tree.join("etc/nowait").join(entry.file_name()), 0o644)?;
        }
    }
    stage::directory(&tree.join("etc/nowait/conf.d"))?;
    for (from, to) in [
        ("packaging/image/nowait.conf", "etc/nowait/nowait.conf"),
        ("packaging/image/passwd", "etc/passwd"),
        ("packaging/image/group", "etc/group"),
        ("packaging/site/index.html", "srv/index.html"),
    ] {
        copy(&root().join(from), &tree.join(to), 0o644)?;
    }
    // The runtime mounts file systems there, also if the root can't be written to.
    for name in ["tmp", "proc", "sys", "dev"] {
        stage::directory(&tree.join(name))?;
    }
    let mut wanted = stage::needed(&program, machine)?;
    while let Some(name) = wanted.pop() {
        // The loader is where the program says; others are found in its directory, too.
        let to = match name.starts_with("ld-linux") && machine.rpm == "x86_64" {
            true => tree.join("lib64").join(&name),
            false => tree.join("lib").join(&name),
        };
        if !to.exists() {
            let from = library(&name, machine)?;
            copy(&from, &to, 0o755)?;
            wanted.extend(stage::needed(&from, machine)?);
        }
    }
    let certificates = Path::new("/etc/ssl/certs/ca-certificates.crt");
    if certificates.exists() {
        copy(certificates, &tree.join("etc/ssl/certs/ca-certificates.crt"), 0o644)?;
    }
    Ok(())
}

/// Finds a library of the machine that the image is for.
fn library(name: &str, machine: &Machine) -> Result<PathBuf, String> {
    let triple = format!("{}-linux-gnu", machine.rpm);
    let mut places = vec![PathBuf::from(format!("/usr/{triple}/lib"))];
    if machine.emulator.is_none() {
        places = vec![format!("/lib/{triple}").into(), format!("/usr/lib/{triple}").into()];
        places.extend(LIBRARIES.iter().map(|place| Path::new("/").join(place)));
    }
    let found = places.iter().map(|place| place.join(name)).find(|path| path.exists());
    found.ok_or_else(|| format!("{name} is in none of {places:?}"))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let content = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    stage::write(to, &content, mode)
}

/// A tar file whose content depends on the tree alone.
fn pack(tree: &Path, to: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    output(tar.arg("-cf").arg(to).arg("-C").arg(tree).arg(".")).map(drop)
}

/// A content by its digest.
struct Blob {
    digest: String,
    size: usize,
}

impl Blob {
    /// Where it is in the layout.
    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, kind: &str) -> String {
        format!(
            r#"{{"mediaType":"{kind}","digest":"sha256:{}","size":{}}}"#,
            self.digest, self.size
        )
    }
}

fn blob(layout: &Path, content: &[u8]) -> Result<Blob, String> {
    let folder = layout.join("blobs/sha256");
    let unnamed = folder.join("new");
    stage::write(&unnamed, content, 0o644)?;
    let printed = output(Command::new("sha256sum").arg("-b").arg(&unnamed))?;
    let digest: String = String::from_utf8_lossy(&printed).chars().take(64).collect();
    fs::rename(&unnamed, folder.join(&digest)).map_err(|error| error.to_string())?;
    Ok(Blob { digest, size: content.len() })
}

fn config(machine: &Machine, layer: &Blob) -> String {
    let architecture = machine.deb;
    let layer = &layer.digest;
    format!(
        r#"{{"architecture":"{architecture}","os":"linux","config":{{"User":"{USER}","ExposedPorts":{{"8080/tcp":{{}}}},"Entrypoint":["/usr/sbin/nowait"],"Cmd":["-g","daemon off;"],"WorkingDir":"/srv","StopSignal":"SIGQUIT","Healthcheck":{{"Test":["CMD","/usr/sbin/nowait","check-health"],"Interval":30000000000,"Timeout":5000000000}}}},"rootfs":{{"type":"layers","diff_ids":["sha256:{layer}"]}}}}"#
    )
}
