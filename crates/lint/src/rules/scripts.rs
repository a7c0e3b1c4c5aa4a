//! Applications behind FastCGI.

use nowait_conf::Level;

use crate::model::{BlockKind, BlockRef, Model};
use crate::rule::{Rule, RuleReport};
use crate::values::condition;
use crate::words::is_field;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "script-unchecked",
        level: Level::Error,
        fixes: false,
        summary: "PHP is given paths whose files were not looked for",
        text: "For `/uploads/photo.jpg/x.php`, which matches `\\.php$`, PHP by default looks for the \
               longest part that is a file, and runs the uploaded picture. `try_files $uri =404` makes \
               sure that the script exists. (With `fastcgi_split_path_info`, it is \
               `try_files $fastcgi_script_name =404`.)",
        wrong: "
location ~ \\.php$ {
    root /srv/app/public;
    include fastcgi_params;
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
    fastcgi_pass 127.0.0.1:9000;
}
",
        right: "
location ~ \\.php$ {
    root /srv/app/public;
    try_files $uri =404;
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
    fastcgi_pass 127.0.0.1:9000;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: unchecked,
    },
    Rule {
        name: "script-name-missing",
        level: Level::Warn,
        fixes: false,
        summary: "PHP is not told which script to run",
        text: "PHP runs the file in the parameter `SCRIPT_FILENAME`; without it, the page stays blank. \
               `fastcgi.conf` has it, `fastcgi_params` has not.",
        wrong: "
location ~ \\.php$ {
    root /srv/app/public;
    try_files $uri =404;
    fastcgi_param QUERY_STRING $query_string;
    fastcgi_pass 127.0.0.1:9000;
}
",
        right: "
location ~ \\.php$ {
    root /srv/app/public;
    try_files $uri =404;
    fastcgi_param QUERY_STRING $query_string;
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
    fastcgi_pass 127.0.0.1:9000;
}
",
        source: "https://www.php.net/manual/en/install.unix.nginx.php",
        check: name_missing,
    },
];

/// Locations that pass all `.php` paths to an application.
fn scripts<'m>(
    model: &'m Model<'m>,
) -> impl Iterator<Item = (BlockRef<'m>, &'m nowait_conf::Node)> {
    model.all(BlockKind::Location).filter_map(|block| {
        let location = block.location().filter(|location| location.is_regex())?;
        let node = block.own("fastcgi_pass").next()?;
        location.lossy().contains(".php").then_some((block, node))
    })
}

fn unchecked(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in scripts(model) {
        let Some(location) = block.location() else { continue };
        let pattern = location.lossy();
        // A single script, or a choice of some.
        let is_fixed = pattern.starts_with('^')
            && !pattern.contains('+')
            && !pattern.contains(".*")
            && !pattern.contains("[^");
        let looks = block.own("try_files").next().is_some()
            || block.within().any(|inner| {
                condition(inner).is_some_and(|words| {
                    words.first().is_some_and(|word| matches!(word.as_str(), "!-f" | "!-e" | "-f"))
                })
            });
        let name = block.effective("fastcgi_param");
        let name = name.iter().find(|node| is_field(node, "SCRIPT_FILENAME"));
        let is_constant =
            name.is_some_and(|n| n.args.get(1).is_some_and(|w| !w.lossy().contains("_name")));
        if !is_fixed && !looks && !is_constant {
            report
                .find(node.name.span, "PHP may run files that are no scripts")
                .note(location.word.span, "\"/photo.jpg/x.php\" matches, too")
                .hint("try_files $uri =404;");
        }
    }
}

fn name_missing(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in scripts(model) {
        let parameters = block.effective("fastcgi_param");
        let is_set = parameters.iter().any(|node| is_field(node, "SCRIPT_FILENAME"));
        if !is_set && (!model.is_part || !parameters.is_empty()) {
            report
                .find(node.name.span, "PHP is not told which script to run")
                .hint("fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;");
        }
    }
}
