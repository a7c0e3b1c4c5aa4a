<?php
// An application of PHP: what `do` asks for.
switch ($_GET['do'] ?? '') {
    case 'facts':
        http_response_code(201);
        header('X-Script: ' . $_SERVER['SCRIPT_NAME']);
        setcookie('a', 'b');
        echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['HTTP_HOST'], ' ', $_SERVER['PATH_INFO'] ?? '';
        break;
    case 'upload':
        $hash = hash_init('adler32');
        $size = hash_update_stream($hash, fopen('php://input', 'rb'));
        echo $size, ' ', hash_final($hash);
        break;
    case 'large':
        for ($n = 0; $n < 1000; $n++) {
            echo str_repeat(chr(97 + $n % 26), 10000);
        }
        break;
    case 'protected':
        header('X-Accel-Redirect: /protected/report.txt');
        break;
    case 'warning':
        trigger_error('a complaint', E_USER_WARNING);
        echo 'warned';
        break;
    case 'redirect':
        header('Location: /elsewhere');
        break;
    case 'fatal':
        undefined_function();
        break;
    case 'hang':
        if (isset($_GET['begun'])) {
            echo 'begun';
            flush();
        }
        file_put_contents(__DIR__ . '/../tmp/process', getmypid() . '.');
        sleep(600);
        break;
    case 'wait':
        $go = __DIR__ . '/../tmp/go';
        file_put_contents(__DIR__ . '/../tmp/process', getmypid() . '.');
        while (!file_exists($go)) {
            usleep(5000);
            clearstatcache();
        }
        unlink($go);
        echo 'waited';
        break;
    case 'complain':
        for ($n = 0; $n < 1024 * $_GET['megabytes']; $n++) {
            error_log(str_repeat('complaint ', 102));
        }
        echo 'complained';
        break;
}
